"""`python -m lockstep_probe RANKS BODY`: what a Forker of `ranks` starts."""

from lockstep_probe import ranks

ranks.main()
