"""Order of the requests of each model: queues, attempts, results, and the states that are saved behind them."""
