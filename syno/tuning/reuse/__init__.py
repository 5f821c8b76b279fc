"""Reuse of tuned programs among operators of other shapes.

Source: Fang, Shen, Wang and Chen, "ETO", PVLDB 15(2), 2022. What it computes for GPUs is here as it is there;
plans are optimal where the paper approximates.
"""

from syno.tuning.reuse.operators import Operator as Operator
from syno.tuning.reuse.plan import ReusePlan as ReusePlan
from syno.tuning.reuse.plan import plan_operators as plan_operators
from syno.tuning.reuse.sets import operator_set as operator_set
