#!/bin/sh
# A team's key: two routes, fifty dollars a month, no shell tool.
#
#   pointsman gateway --config pointsman.yaml &
#   OPENAI_API_KEY=sk-… sh set_up.sh        # writes team-ci.key, which clients send as their OpenAI key
#
# Once; a second time it stops at the account, which is there. OPENAI_BASE_URL: another server of that dialect.
set -eu
team=team

pointsman account create "$team"
pointsman provider create --account "$team" --name work --type openai --credential OPENAI_API_KEY \
  ${OPENAI_BASE_URL:+--config "OPENAI_BASE_URL=$OPENAI_BASE_URL"}
pointsman route create fast --account "$team" --provider work --model gpt-4o-mini
pointsman route create careful --account "$team" --provider work --model gpt-4o

# What the provider's price list says, a million tokens, in the currency of the budget.
pointsman price set work=gpt-4o-mini --account "$team" --input-price 0.15 --output-price 0.60 --cached-price 0.075
pointsman price set work=gpt-4o --account "$team" --input-price 2.50 --output-price 10 --cached-price 1.25

# Rules first, the key last: it never works without them.
pointsman policy set policy.yaml --account "$team"
pointsman policy enforce --account "$team"
pointsman budget create team-month --account "$team" --account-wide --money 50 --window month
pointsman budget create key-day --account "$team" --key '*' --money 5 --window day
pointsman key create team-ci --account "$team" --route fast --route careful --out team-ci.key
