"""What people run today, written as they write it."""
