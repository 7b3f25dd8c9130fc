#!/usr/bin/env bash
# Compares the metrics that two builds of reprise write: ten short runs with the same configuration and seed, metrics.jsonl byte for
# byte.
#   benchmarks/regress/metrics.sh OLD NEW      each a program, or a commit to build one from
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 2 ] || { echo "usage: $0 OLD NEW, two reprise programs or commits" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"; git worktree prune' EXIT

program() { # program PROGRAM-OR-COMMIT NAME: prints the path of the program
	[ ! -x "$1" ] || [ -d "$1" ] || { realpath "$1"; return; }
	git worktree add --quiet --detach "$folder/tree-$2" "$1"
	(cd "$folder/tree-$2" && go build -o "$folder/reprise-$2" ./cmd/reprise)
	echo "$folder/reprise-$2"
}
old=$(program "$1" old)
new=$(program "$2" new)

# A small model and few updates, enough to exercise every part of the configuration.
short="--set warmup.steps=30 --set warmup.until=0 --set budget.updates=8 --set budget.compute=0 --set evaluate.samples=0
	--set pipeline.batch=64 --set policy.hidden=32 --set policy.intermediate=64"
laboratory="-c /dev/null --set pipeline.group=8 --set replay.capacity=256"

train() { # train PROGRAM SIDE NAME FLAGS…: prints the path of the metrics
	local program=$1 out="$folder/$3.$2"
	shift 3
	# shellcheck disable=SC2086
	"$program" train --out "$out" --quiet $short "$@"
	echo "$out/metrics.jsonl"
}

differ=0
compare() { # compare NAME FLAGS…
	local name=$1 a b
	shift
	a=$(train "$old" old "$name" "$@")
	b=$(train "$new" new "$name" "$@")
	if cmp -s "$a" "$b"; then
		echo "same    $name ($(wc -l <"$b") lines, $(wc -c <"$b") bytes)"
	else
		echo "DIFFERS $name: $(diff "$a" "$b" | head -2 | tail -1 | cut -c1-200)"
		differ=1
	fi
}

# shellcheck disable=SC2086
{
	compare async $laboratory
	compare sync $laboratory --set pipeline.mode=sync
	compare queue -c /dev/null --set replay.sampler=fifo --set replay.capacity=0
	compare prioritized $laboratory --set replay.sampler=prioritized --set replay.age_decay=50
	compare mix $laboratory --set replay.mix=1
	compare prompts -c configs/prompts.yaml --set pipeline.batch=64 --set prompts.cooldown=1
	compare ppo -c configs/objectives.yaml --set learner.objective=ppo
	compare grpo_off -c configs/og-10-1.yaml
	compare frozenlake -c configs/frozenlake.yaml --set replay.capacity=256
	compare search -c configs/search.yaml --set replay.capacity=256
}
exit $differ
