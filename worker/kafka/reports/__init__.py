"""Reads the topic of reports as a group member or not, and sends reports."""
