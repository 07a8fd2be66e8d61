"""Rows in, text out: tables, JSON, JSON Lines, YAML and TSV from the dataclasses that the verbs return."""

from klog.render.report import Format, Report
from klog.render.writer import render

__all__ = ["Format", "Report", "render"]
