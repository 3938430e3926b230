"""A script for sFlow-RT, as blog.sflow.com of March 2013 ("DDoS") has it and many projects since, with urllib in place of requests: groups,
a flow, a threshold, the long poll, the heaviest flow of the event. It prints that and takes back what it has defined."""
import json
import sys
import urllib.request

rt = sys.argv[1]


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(rt + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=70) as answer:
        return answer.read()


groups = {"outside": ["0.0.0.0/0"], "inside": ["198.51.100.0/24"]}
flow = {
    "keys": "ipsource,ipdestination",
    "value": "frames",
    "filter": "sourcegroup=outside&destinationgroup=inside",
    "log": True,
}
ask("PUT", "/group/json", groups)
ask("PUT", "/flow/incoming/json", flow)
ask("PUT", "/threshold/incoming/json", {"metric": "incoming", "value": 1000})

event_id = -1
found = None
for _ in range(5):
    events = json.loads(ask("GET", "/events/json?maxEvents=10&timeout=20&eventID=%d" % event_id))
    if len(events) == 0:
        sys.exit("no event in 20 seconds")
    event_id = events[0]["eventID"]
    events.reverse()
    for event in events:
        if event["metric"] == "incoming":
            path = "/metric/%s/%s.incoming/json" % (event["agent"], event["dataSource"])
            metric = json.loads(ask("GET", path))
            if len(metric) > 0 and len(metric[0]["topKeys"]) > 0:
                found = metric[0]["topKeys"][0]["key"]
    if found is not None:
        break

active = json.loads(ask("GET", "/activeflows/ALL/incoming/json?maxFlows=5&minValue=1"))
print(json.dumps({"key": found, "active": [flow["key"] for flow in active]}))
if "keep" not in sys.argv:
    ask("DELETE", "/threshold/incoming/json")
    ask("DELETE", "/flow/incoming/json")
    ask("DELETE", "/group/json")
