"""Counting: claim, count, commit, written once against narrow ports; knows neither Kafka nor Redis nor a screen."""
