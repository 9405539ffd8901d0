"""Answers for people: tables, JSON, CSV, pages."""
