"""Failures of workers."""
