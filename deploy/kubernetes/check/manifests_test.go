// Package check holds the manifests of deploy/kubernetes to the types from which the schemas of Kubernetes, Kustomize
// and the Prometheus operator are published, and to each other: what selects something, refers to a port, a volume or
// a file must find it. `make test-kubernetes` runs it.
package check

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// tree is an object as it is written.
type tree = map[string]any

// manifests reads the folder, with one file in place of what is there if a name is given.
func manifests(t *testing.T, name, text string) filesys.FileSystem {
	t.Helper()
	files := filesys.MakeFsInMemory()
	paths, err := filepath.Glob("../*.yaml")
	if err != nil || len(paths) < 7 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == name {
			content = []byte(text)
		}
		if err := files.WriteFile("/"+filepath.Base(path), content); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// build does what `kubectl apply -k` does before it sends anything.
func build(files filesys.FileSystem) ([]tree, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/")
	if err != nil {
		return nil, err
	}
	var objects []tree
	for _, r := range resources.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// deployment is the objects of the manifests, decoded.
type deployment struct {
	set      apps.StatefulSet
	nodes    core.Service
	clients  core.Service
	policy   network.NetworkPolicy
	budget   policy.PodDisruptionBudget
	monitor  monitoring.ServiceMonitor
	config   core.ConfigMap
	problems []error
}

func (d *deployment) want(ok bool, format string, args ...any) {
	if !ok {
		d.problems = append(d.problems, fmt.Errorf(format, args...))
	}
}

// check returns everything that is wrong with the objects.
func check(objects []tree) error {
	d := &deployment{}
	targets := map[string]any{
		"apps/v1 StatefulSet reprise": &d.set, "v1 Service reprise-nodes": &d.nodes, "v1 Service reprise": &d.clients,
		"networking.k8s.io/v1 NetworkPolicy reprise": &d.policy, "policy/v1 PodDisruptionBudget reprise": &d.budget,
		"monitoring.coreos.com/v1 ServiceMonitor reprise": &d.monitor, "v1 ConfigMap reprise-config": &d.config,
	}
	digest := regexp.MustCompile(`^reprise-config-\w+$`)
	for _, object := range objects {
		metadata, _ := object["metadata"].(tree)
		name := fmt.Sprint(metadata["name"])
		if digest.MatchString(name) {
			name = "reprise-config"
		}
		id := fmt.Sprint(object["apiVersion"], " ", object["kind"], " ", name)
		target, ok := targets[id]
		if !ok {
			d.want(false, "%s: no such object is expected", id)
			continue
		}
		delete(targets, id)
		text, err := yaml.Marshal(object)
		if err == nil {
			err = yaml.UnmarshalStrict(text, target)
		}
		d.want(err == nil, "%s: %v", id, err)
		d.want(metadata["namespace"] == "reprise", "%s: namespace is %v", id, metadata["namespace"])
		labels, _ := metadata["labels"].(tree)
		d.want(labels["app.kubernetes.io/name"] == "reprise", "%s: labels are %v", id, labels)
		d.checkNames(id, object)
	}
	d.want(len(targets) == 0, "missing: %v", slices.Sorted(maps.Keys(targets)))
	if d.problems == nil {
		d.checkPods()
		d.checkSelectors()
		d.checkFiles()
	}
	return errors.Join(d.problems...)
}

// names are the keys of maps that have no schema.
func names() map[string][]string {
	labels := []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "reprise-client",
		"kubernetes.io/metadata.name"}
	return map[string][]string{"labels": labels, "matchLabels": labels, "requests": {"cpu", "memory", "storage"},
		"limits": {"cpu", "memory"}, "data": {"serve.yaml"}}
}

func (d *deployment) checkNames(where string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			d.checkNames(where, e)
		}
	case tree:
		for key, below := range v {
			if known, ok := names()[key]; ok {
				inner, _ := below.(tree)
				for name := range inner {
					d.want(slices.Contains(known, name), "%s: %s: %s is not one of %v", where, key, name, known)
				}
			}
			d.checkNames(where, below)
		}
	}
}

func (d *deployment) container() core.Container {
	if len(d.set.Spec.Template.Spec.Containers) != 1 {
		d.want(false, "%d containers", len(d.set.Spec.Template.Spec.Containers))
		return core.Container{}
	}
	return d.set.Spec.Template.Spec.Containers[0]
}

func (d *deployment) port(name string) int32 {
	for _, p := range d.container().Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	d.want(false, "no container port is called %q", name)
	return 0
}

// checkPods holds the pods to what the service needs.
func (d *deployment) checkPods() {
	spec, c := d.set.Spec, d.container()
	d.want(spec.Replicas != nil && *spec.Replicas == 3, "replicas: %v", spec.Replicas)
	d.want(spec.ServiceName == d.nodes.Name, "serviceName: %s", spec.ServiceName)
	for name, want := range map[string]int32{"flight": 7447, "pages": 7448, "nodes": 6222} {
		d.want(d.port(name) == want, "port %s is %d, want %d", name, d.port(name), want)
	}
	var peers []string
	for _, arg := range c.Args {
		if peer, ok := strings.CutPrefix(arg, "--peer="); ok {
			peers = append(peers, peer)
		}
	}
	for i := range *spec.Replicas {
		peer := fmt.Sprintf("%s-%d.%s.%s.svc:%d", d.set.Name, i, d.nodes.Name, d.set.Namespace, d.port("nodes"))
		d.want(slices.Contains(peers, peer), "args: no --peer=%s", peer)
	}
	d.want(len(peers) == int(*spec.Replicas), "args: %d peers of %d nodes", len(peers), *spec.Replicas)
	advertise := fmt.Sprintf("--advertise=grpc+tls://$(POD_NAME).%s.%s.svc:%d", d.nodes.Name, d.set.Namespace,
		d.port("flight"))
	d.want(slices.Contains(c.Args, advertise), "args: no %s", advertise)
	variables := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			variables[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	for _, m := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
		d.want(variables[m[1]] != "", "args: $(%s) is not in env", m[1])
	}
	probe := func(name string, p *core.Probe) {
		d.want(p != nil && p.HTTPGet != nil && p.HTTPGet.Path == "/healthz" && p.HTTPGet.Port.StrVal == "pages" &&
			p.HTTPGet.Scheme == core.URISchemeHTTPS, "%s is not HTTPS to /healthz of the pages", name)
	}
	probe("startupProbe", c.StartupProbe)
	probe("readinessProbe", c.ReadinessProbe)
	d.want(c.LivenessProbe != nil && c.LivenessProbe.TCPSocket != nil && c.LivenessProbe.TCPSocket.Port.StrVal == "flight",
		"livenessProbe is not to flight")
	volumes := map[string]bool{}
	for _, v := range spec.Template.Spec.Volumes {
		volumes[v.Name] = true
		d.want(v.Secret == nil || v.Secret.SecretName == "reprise-"+v.Name, "volume %s is of another secret", v.Name)
		d.want(v.ConfigMap == nil || v.ConfigMap.Name == d.config.Name, "volume %s is of another configuration", v.Name)
	}
	for _, v := range spec.VolumeClaimTemplates {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		d.want(volumes[m.Name], "volumeMounts: no volume %s", m.Name)
		delete(volumes, m.Name)
	}
	d.want(len(volumes) == 0, "volumes that nothing mounts: %v", volumes)
	grace := spec.Template.Spec.TerminationGracePeriodSeconds
	d.want(grace != nil && *grace > 30, "a stop takes 30 s, terminationGracePeriodSeconds is %v", grace)
}

// checkSelectors holds what selects pods to the pods' labels.
func (d *deployment) checkSelectors() {
	labels := d.set.Spec.Template.Labels
	selects := func(what string, selector, labels map[string]string) {
		ok := len(selector) > 0
		for key, value := range selector {
			ok = ok && labels[key] == value
		}
		d.want(ok, "%s selects %v, not %v", what, selector, labels)
	}
	selects("stateful set", d.set.Spec.Selector.MatchLabels, labels)
	selects("service of the nodes", d.nodes.Spec.Selector, labels)
	selects("service of the clients", d.clients.Spec.Selector, labels)
	selects("network policy", d.policy.Spec.PodSelector.MatchLabels, labels)
	selects("disruption budget", d.budget.Spec.Selector.MatchLabels, labels)
	selects("monitor", d.monitor.Spec.Selector.MatchLabels, d.clients.Labels)
	for _, c := range d.set.Spec.Template.Spec.TopologySpreadConstraints {
		selects("spread over "+c.TopologyKey, c.LabelSelector.MatchLabels, labels)
	}
	d.want(d.nodes.Spec.ClusterIP == core.ClusterIPNone && d.nodes.Spec.PublishNotReadyAddresses,
		"the service of the nodes has an address of its own, or hides nodes that are not ready")
	for _, s := range []core.Service{d.nodes, d.clients} {
		for _, p := range s.Spec.Ports {
			d.want(p.TargetPort.StrVal == p.Name && p.Port == d.port(p.Name), "service %s: port %s leads to %s, %d", s.Name,
				p.Name, p.TargetPort.String(), p.Port)
		}
	}
	from := map[string]string{} // who may reach a port
	for _, rule := range d.policy.Spec.Ingress {
		for _, p := range rule.Ports {
			for _, peer := range rule.From {
				from[p.Port.StrVal] += fmt.Sprint(peer.PodSelector != nil, peer.NamespaceSelector != nil, " ")
			}
		}
	}
	want := map[string]string{"flight": "true false ", "nodes": "true false ", "pages": "false true "}
	d.want(maps.Equal(from, want), "pods and namespaces may reach %v, want %v", from, want)
	d.want(len(d.policy.Spec.Egress) == 2 && len(d.policy.Spec.PolicyTypes) == 2, "egress is not bounded")
	d.want(d.budget.Spec.MaxUnavailable != nil && d.budget.Spec.MaxUnavailable.IntVal == 1, "maxUnavailable: %v",
		d.budget.Spec.MaxUnavailable)
	if len(d.monitor.Spec.Endpoints) != 1 {
		d.want(false, "%d endpoints", len(d.monitor.Spec.Endpoints))
		return
	}
	e := d.monitor.Spec.Endpoints[0]
	d.want(slices.ContainsFunc(d.clients.Spec.Ports, func(p core.ServicePort) bool { return p.Name == e.Port }),
		"the monitor reads port %s, which the service does not have", e.Port)
	d.want(e.Scheme != nil && *e.Scheme == monitoring.SchemeHTTPS && e.Path == "/metrics" && e.TLSConfig != nil,
		"the monitor does not read /metrics by TLS")
}

// checkFiles looks for the files that arguments and configuration name, below what is mounted.
func (d *deployment) checkFiles() {
	text := strings.Join(d.container().Args, "\n") + "\n" + d.config.Data["serve.yaml"]
	named := regexp.MustCompile(`(?:=|: )(/[\w./-]+)`).FindAllStringSubmatch(text, -1)
	d.want(len(named) >= 6, "only %d files are named: %v", len(named), named)
	for _, m := range named {
		d.want(slices.ContainsFunc(d.container().VolumeMounts, func(v core.VolumeMount) bool {
			return m[1] == v.MountPath || strings.HasPrefix(m[1], v.MountPath+"/")
		}), "%s is not below anything mounted", m[1])
	}
}

func TestManifestsHaveTheirSchemasAndFitTogether(t *testing.T) {
	objects, err := build(manifests(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(objects); err != nil {
		t.Error(err)
	}
}

// misspell calls do with every key below v misspelled, one at a time.
func misspell(path string, v any, do func(path string)) {
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			misspell(fmt.Sprintf("%s[%d]", path, i), e, do)
		}
	case tree:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, wrong := v[key], key[:len(key)-1]+"_"+key[len(key)-1:]
			delete(v, key)
			v[wrong] = value
			do(path + "." + key)
			delete(v, wrong)
			v[key] = value
			misspell(path+"."+key, value, do)
		}
	}
}

func TestEveryMisspelledFieldIsFound(t *testing.T) {
	objects, err := build(manifests(t, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, object := range objects {
		misspell(fmt.Sprint(object["kind"]), object, func(path string) {
			fields++
			if check(objects) == nil {
				t.Errorf("%s was misspelled and not found", path)
			}
		})
	}
	if fields < 200 {
		t.Errorf("only %d fields were misspelled", fields)
	}
	text, err := os.ReadFile("../kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization tree
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	misspell("Kustomization", kustomization, func(path string) {
		text, err := yaml.Marshal(kustomization)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := build(manifests(t, "kustomization.yaml", string(text)))
		if err == nil {
			err = check(objects)
		}
		if err == nil {
			t.Errorf("%s was misspelled and not found", path)
		}
	})
	t.Logf("%d fields of objects were misspelled, one at a time", fields)
}

func TestWrongReferencesAreFound(t *testing.T) {
	for _, c := range []struct{ file, old, new, want string }{
		{"stateful-set.yaml", "replicas: 3", "replicas: 5", "no --peer=reprise-4"},
		{"stateful-set.yaml", "reprise-2.reprise-nodes.reprise.svc:6222", "reprise-2.nodes:6222", "no --peer=reprise-2"},
		{"stateful-set.yaml", "$(NODE_NAME)", "$(ZONE)", "$(ZONE) is not in env"},
		{"stateful-set.yaml", "$(POD_NAME).reprise-nodes", "$(POD_NAME)", "no --advertise"},
		{"stateful-set.yaml", "containerPort: 7448", "containerPort: 7449", "port pages is 7449"},
		{"stateful-set.yaml", "secretName: reprise-tls", "secretName: tls", "another secret"},
		{"stateful-set.yaml", "mountPath: /etc/reprise/tls", "mountPath: /etc/tls", "not below anything mounted"},
		{"stateful-set.yaml", "- name: cluster\n          secret", "- name: other\n          secret", "no volume cluster"},
		{"stateful-set.yaml", "runAsUser: 65532", "runAsUser: root", "cannot unmarshal"},
		{"stateful-set.yaml", "path: /healthz", "path: /health", "is not HTTPS to /healthz"},
		{"services.yaml", "clusterIP: None", "clusterIP: 10.0.0.1", "address of its own"},
		{"services.yaml", "targetPort: pages", "targetPort: web", "port pages leads to web"},
		{"services.yaml", "component: clients", "component: all", "monitor selects"},
		{"network-policy.yaml", "- port: pages", "- port: flight", "may reach"},
		{"disruption-budget.yaml", "name: reprise\n", "name: other\n", "disruption budget selects"},
		{"service-monitor.yaml", "port: pages", "port: metrics", "reads port metrics"},
		{"serve.yaml", "/etc/reprise/cluster/secret", "/secret", "/secret is not below"},
	} {
		text, err := os.ReadFile(filepath.Join("..", c.file))
		if err != nil {
			t.Fatal(err)
		}
		at := strings.LastIndex(string(text), c.old)
		if at < 0 {
			t.Fatalf("%s has no %q", c.file, c.old)
		}
		objects, err := build(manifests(t, c.file, string(text[:at])+c.new+string(text[at+len(c.old):])))
		if err != nil {
			t.Fatalf("%s with %q: %v", c.file, c.new, err)
		}
		if err := check(objects); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q in place of %q: %v, want %q", c.file, c.new, c.old, err, c.want)
		}
	}
}
