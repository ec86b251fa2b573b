"""The topic of reports: read as a member of the group, asked as anybody might, and sent to."""
