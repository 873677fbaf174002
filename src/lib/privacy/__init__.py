"""What must not be kept: redaction of what is written, retention, and erasure for good."""
