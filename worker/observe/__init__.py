"""What is observed.

`events` makes log lines, metrics and readiness of what the core tells; `metrics` and `logs` say how they look,
`progress` what a stream's threads say of themselves, `merged` what several processes show as one.
"""
