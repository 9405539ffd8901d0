"""From SQL text to a plan to an answer: policy, domains, compiler, data vectors, release store, ledger."""

__product__ = "noisegate"
