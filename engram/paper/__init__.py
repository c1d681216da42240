"""The paper's evaluation: every table and figure as a plan of runs, and how to show what came of it."""
