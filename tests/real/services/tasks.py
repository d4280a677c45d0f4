"""Tasks of a Celery worker."""

import os

from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
PRICES = {"pen": 2}


@app.task
def price(what: str, count: int) -> int:
    total = [PRICES[what]] * count
    return sum(total)
