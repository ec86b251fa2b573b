"""Reads reports as a group member or a non-member, and sends reports."""
