"""noisegate.verify: is an answer on a synthetic table within a tolerance of the truth?"""
