"""Categories of a dataset that has none: its texts' embeddings, put into groups of like ones.

categories = categorize(dataset, {"num_categories": 6})
categories.names  # ('auto_category_0_river_boat_fish', ...)
parts = {name: dataset.select(categories.rows(name)) for name in categories.names}
"""

from .config import AutoCategorizeConfig, as_config
from .fit import Categories, categorize

__all__ = ["AutoCategorizeConfig", "Categories", "as_config", "categorize"]
