"""What every page is made of: templates, one style, one set of scripts. Live pages, the server's page and pages that
are a file use the same. On the ground floor: it knows no web framework, and nothing of either half.
"""

from cookhouse.pages.page import STATIC, TYPES, document, environment, run_address

__all__ = ["STATIC", "TYPES", "document", "environment", "run_address"]
