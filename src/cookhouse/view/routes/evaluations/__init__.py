"""Evaluations: what each run came to, the items at which two of them differ, and what evaluators noted."""

from cookhouse.view.routes.evaluations import compare, item, listing, notes

ROUTES = [*listing.ROUTES, *compare.ROUTES, *item.ROUTES, *notes.ROUTES]

__all__ = ["ROUTES"]
