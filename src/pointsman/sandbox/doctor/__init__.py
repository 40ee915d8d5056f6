"""Will the clients on this machine use the door and trust its certificate? Asked with a real request each.

Pure: `client`, `mend`, `request`, `reading`, `environment_findings`, `host_findings`, `agents`. They decide what is
asked, what an answer means and what would mend it. Shells: `survey` finds clients, `process` runs them, `examine`
asks, mends and asks again in a `trial_place`, `door_facts` looks, `regular_file` reads what others may have written,
`endpoints` dials what a route file names.
"""
