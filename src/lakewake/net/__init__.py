"""Reaching other machines: addresses, S3, and one HTTP client with deadlines."""
