"""Where an export can lie."""
