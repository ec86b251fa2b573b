"""The topic of reports: reading with and without joining the group, and sending."""
