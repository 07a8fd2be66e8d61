"""Counting what producers sent against what each tier has (paper, section 4)."""
