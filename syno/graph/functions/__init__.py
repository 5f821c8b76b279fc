"""What importers build their rows from: functions of tensors as nodes."""
