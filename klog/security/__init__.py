"""Authentication, authorization and quotas: decided without I/O."""
