package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reprise-rl/reprise/rollout/option"
)

// DefaultPort is the port at which nodes listen for one another.
const DefaultPort = "6222"

// Options configure a node. They are the part `cluster` of a service's configuration.
type Options struct {
	Node   string `yaml:"node" json:"node"`     // name, which no other node has [the machine's]
	Listen string `yaml:"listen" json:"listen"` // HOST:PORT for the other nodes [127.0.0.1:6222]
	// HOST:PORT of all nodes, this one included
	Peers []string `yaml:"peers" json:"peers"`
	// what fails together: a rack, a machine; nodes of the same domain hold no two copies of a table [the machine's name]
	Domain   string `yaml:"domain" json:"domain"`
	Replicas int    `yaml:"replicas" json:"replicas"` // copies of each table, 1, 3 or 5 [3]
	// serve even if copies share a failure domain, or there is one copy only; /healthz names what is risked
	AcceptRisk bool `yaml:"accept_risk" json:"accept_risk"`
	// lost node of which this one, under another name, takes over the copies [none]
	Replaces string `yaml:"replaces" json:"replaces"`
	// file of the secret that the nodes share, at least 16 characters [none, on loopback without tokens only]
	SecretFile string `yaml:"secret_file" json:"secret_file"`
	// address of this node's service as clients dial it, and the other nodes tell them [where it listens]
	Advertise string `yaml:"advertise" json:"advertise"`

	Data   string       `yaml:"-" json:"-"` // folder of the node's copies
	TLS    *tls.Config  `yaml:"-" json:"-"` // between nodes; nil: none, on loopback only
	Logger *slog.Logger `yaml:"-" json:"-"` // nil: nothing is logged
}

// On reports whether the service is a node of a cluster.
func (o Options) On() bool { return o.Node != "" || o.Listen != "" || len(o.Peers) > 0 }

// WithDefaults returns the options with the defaults filled in.
func (o Options) WithDefaults() Options {
	machine, err := os.Hostname()
	if err != nil {
		machine = "node"
	}
	o.Node = cmp.Or(o.Node, strings.ReplaceAll(machine, ".", "-"))
	o.Domain = cmp.Or(o.Domain, machine)
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:"+DefaultPort)
	o.Replicas = cmp.Or(o.Replicas, 3)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every problem at once.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var p option.Problems
	p.Check(!strings.ContainsAny(o.Node, " \t.*>/"), "cluster.node", o.Node, "a name without spaces, dots, *, > and /")
	host, _, err := splitAddress(o.Listen)
	p.Check(err == nil, "cluster.listen", o.Listen, addressForm)
	for i, peer := range o.Peers {
		_, _, err := splitAddress(peer)
		p.Check(err == nil, fmt.Sprintf("cluster.peers[%d]", i), peer, addressForm)
	}
	p.Check(o.Replicas == 1 || o.Replicas == 3 || o.Replicas == 5, "cluster.replicas", o.Replicas, "1, 3 or 5")
	p.Check(o.Replicas > 1 || o.AcceptRisk, "cluster.replicas", o.Replicas,
		"3 or 5, or accept_risk: true with it, as one copy does not survive its node")
	p.Check(len(o.Peers) == 0 || len(o.Peers) >= o.Replicas, "cluster.peers", len(o.Peers),
		"all nodes, at least as many as replicas (%d)", o.Replicas)
	p.Check(len(o.Peers) > 0 || o.Replicas == 1, "cluster.peers", "none", "the addresses of all nodes")
	local := net.ParseIP(host).IsLoopback() || host == "localhost"
	p.Check(local || o.SecretFile != "", "cluster.secret_file", "none",
		"a file with a secret that the nodes share, as %s is open to other machines", o.Listen)
	p.Check(local || o.TLS != nil, "cluster.listen", o.Listen,
		"tls.certificate, tls.key and tls.client_ca with an address that is open to other machines")
	p.Check(o.Replaces != o.Node, "cluster.replaces", o.Replaces, "the name of another node, which is lost")
	p.Check(o.Data != "", "cluster", o.Node, "data, the folder of the node's copies")
	return p.Err()
}

const addressForm = "HOST:PORT with a number as port"

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return host, int(number), err
}

// secret reads the secret that the nodes share.
func (o Options) secret() (string, error) {
	if o.SecretFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.SecretFile)
	if err != nil {
		return "", fmt.Errorf("cluster.secret_file: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < 16 {
		return "", fmt.Errorf("cluster.secret_file: %s: has %d characters: want at least 16", o.SecretFile, len(secret))
	}
	return secret, nil
}

// maxPayload is the largest message between nodes: one of a log, or the cluster's state.
const maxPayload = 4 << 20

// domainTag marks a node's failure domain.
const domainTag = "domain:"

// copiesFolder is where a node keeps its copies in its data folder.
const copiesFolder = "cluster"

// serverOptions are those of the node's NATS server. It needs a listener for clients, or it would have no routes; only
// who has the token is let in, and that is this process.
func serverOptions(o Options, token string) (*server.Options, error) {
	host, port, err := splitAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	secret, err := o.secret()
	if err != nil {
		return nil, err
	}
	so := &server.Options{
		ServerName: o.Node, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		MaxPayload: maxPayload, WriteDeadline: 5 * time.Second,
		JetStream: true, StoreDir: filepath.Join(o.Data, copiesFolder), SyncAlways: true, SyncInterval: time.Minute,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 50, // the disk decides
		Cluster: server.ClusterOpts{Name: "reprise", Host: host, Port: port, NoAdvertise: true, TLSConfig: o.TLS,
			PingInterval: time.Second, MaxPingsOut: 2, PoolSize: -1},
	}
	system := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	so.SystemAccount, so.Accounts = system.Name, []*server.Account{system}
	so.Users = []*server.User{{Username: nodeUser, Password: token},
		{Username: systemUser, Password: token, Account: system}}
	so.Tags.Add(domainTag + o.Domain)
	if !o.AcceptRisk {
		so.JetStreamUniqueTag = domainTag
	}
	if secret != "" {
		so.Cluster.Username, so.Cluster.Password, so.Cluster.AuthTimeout = nodeUser, secret, 5
	}
	for _, peer := range o.Peers { // the server counts the nodes by them, and leaves itself out
		u := &url.URL{Scheme: "nats-route", Host: peer}
		if secret != "" {
			u.User = url.UserPassword(nodeUser, secret)
		}
		so.Routes = append(so.Routes, u)
	}
	if !slices.ContainsFunc(o.Peers, func(peer string) bool { return peer != o.Listen }) { // a node on its own
		so.Routes = nil
		so.Cluster = server.ClusterOpts{}
		so.JetStreamUniqueTag = ""
	}
	return so, nil
}

func startServer(o Options, so *server.Options) (*server.Server, error) {
	s, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("starting node %s: %w", o.Node, err)
	}
	log := &serverLog{log: o.Logger}
	s.SetLogger(log, false, false)
	s.Start()
	for end := time.Now().Add(time.Minute); !s.ReadyForConnections(100 * time.Millisecond); {
		why := log.fatalError()
		if why == "" && time.Now().Before(end) {
			continue
		}
		s.Shutdown()
		s.WaitForShutdown()
		if strings.Contains(why, "start JetStream") {
			return nil, fmt.Errorf("%s: the node does not start from the copies there: %s: if the folder is damaged, start "+
				"a node of another name (cluster.node) with an empty one and cluster.replaces: %s", o.Data, why, o.Node)
		}
		return nil, fmt.Errorf("cluster.listen: %s: the node does not listen there: %s: want an address of this machine "+
			"that nobody else uses", o.Listen, cmp.Or(why, "not within a minute"))
	}
	return s, nil
}

// The users of a node's server.
const (
	nodeUser   = "node"
	systemUser = "system" // sees what servers tell one another
)

// dial connects to the node's own server.
func dial(s *server.Server, user, token string) (*nats.Conn, error) {
	return nats.Connect("", nats.InProcessServer(s), nats.UserInfo(user, token), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond))
}

// serverLog passes on what the NATS server logs. While a node is down its errors come by the second: one in errorPause
// is shown.
type serverLog struct {
	log   *slog.Logger
	mu    sync.Mutex
	shown time.Time // when an error was last shown
	fatal string    // the first error that the server cannot run with
}

const errorPause = 10 * time.Second

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf(format, v...)
	l.fatal = cmp.Or(l.fatal, text)
	l.log.Error(text)
}

func (l *serverLog) fatalError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level := slog.LevelDebug
	if time.Since(l.shown) > errorPause || strings.Contains(format, "DISABLED") { // which says why copies end
		l.shown, level = time.Now(), slog.LevelWarn
	}
	l.log.Log(context.Background(), level, fmt.Sprintf(format, v...))
}
