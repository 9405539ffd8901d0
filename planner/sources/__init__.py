"""Engines that hold protected rows and return integer data vectors."""
