"""An index in Lance, the embedded default: on this machine or in S3."""
