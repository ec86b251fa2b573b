"""Simulated users: who they are (`crowd`), and what their devices send (`records`); drawn and made, not sent."""
