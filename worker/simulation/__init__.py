"""Simulated users: who they are, and what their devices send; drawn and made, not sent."""
