"""Simulated users (`crowd`) and the records of their devices (`records`)."""
