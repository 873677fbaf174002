"""What the wires of all model servers share: addresses, headers, event streams, fields."""
