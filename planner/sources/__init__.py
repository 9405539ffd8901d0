"""Engines that hold protected rows and return integer data vectors: the only room that ever holds them."""
