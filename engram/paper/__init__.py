"""The paper's evaluation: the runs that each table and figure needs, and how their results are shown."""
