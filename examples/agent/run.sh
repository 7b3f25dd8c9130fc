# An agent with a calculator, recorded by reprise capture, and a small model that is trained on what it does. From the
# root of the repository, after `make build` and `pip install openai`: sh examples/agent/run.sh
set -e
trap 'kill $(jobs -p)' EXIT
table=grpc://127.0.0.1:7447/agents
bin/reprise serve --http off --data runs/agent/service &
sleep 2
bin/reprise train -c configs/calculator.yaml --buffer $table --publish runs/agent/weights --out runs/agent/run &
until [ -d runs/agent/weights/v0 ]; do sleep 1; done # after the warm-up
bin/reprise engine serve --model runs/agent/weights/v0 --chat-template examples/agent/calculator.jinja &
sleep 5
bin/reprise capture --engine vllm+http://127.0.0.1:8000 --table $table --group 8 --latest \
	--weights runs/agent/weights --data runs/agent/capture &
sleep 5
python3 examples/agent/agent.py --problems 600
