"""Lightning and DeepSpeed: the module, the strategy, the optimizer, the callbacks."""
