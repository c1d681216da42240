"""The types that every other package builds on: batches, parts, contexts, the model, errors and checks."""
