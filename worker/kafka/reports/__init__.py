"""The topic of reports: reads, as a group member or not, and sends."""
