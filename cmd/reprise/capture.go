package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/lab/capture"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

// captureCommand records agents.
type captureCommand struct {
	Engine      string        `required:"" help:"Inference server, vllm+http://HOST:PORT: vLLM, or reprise engine serve."`
	Table       address       `required:"" help:"Table of a service, grpc://host:port/table."`
	Listen      address       `default:"127.0.0.1:8100" help:"Address for agents. One that other machines can reach needs TLS and tokens."`
	Group       int           `default:"1" help:"Sessions of a task that enter the table together."`
	Temperature float64       `default:"1" help:"Sampling temperature of all calls, whatever they ask for; top-p is 1."`
	Deadline    time.Duration `default:"1h" help:"A session without a call or its reward for this long is lost, and counted."`
	Memory      byteSize      `default:"1GB" help:"Most that sessions and calls under way may hold; calls beyond it are refused with status 503."`
	Data        dir           `help:"Folder in which sessions survive a kill. Without it they are in memory alone."`
	Latest      bool          `help:"Where calls do not continue their session's tokens, insert the rollout of the latest call alone."`
	Weights     dir           `help:"Folder in which a trainer publishes versions of the weights, which the engine then takes."`
	KeyFile     file          `help:"File with the engine's API key."`
	Name        text          `help:"The model's name at the engine, if it has several. Agents may call it anything."`

	Tokens         file     `help:"YAML file of the tokens that agents need, as of reprise serve: those that may write the table."`
	TLSCertificate file     `name:"tls-certificate" help:"PEM file of this endpoint's certificate."`
	TLSKey         file     `name:"tls-key" help:"PEM file of its key."`
	HTTPHosts      []string `name:"http-hosts" help:"Other names by which agents reach this endpoint."`

	Service connection `embed:"" prefix:"table-"`
}

// maxAgents bounds the connections of agents.
const maxAgents = 4096

// Run records until the context ends.
func (c *captureCommand) Run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	policy, err := access.NewPolicy(access.Options{Tokens: string(c.Tokens), Logger: log})
	if err != nil {
		return fmt.Errorf("--tokens: %w", err)
	}
	recorder, name, closeTable, err := c.capture(ctx, log)
	if err != nil {
		return flagErrors(err)
	}
	l, err := c.listen(ctx, policy, log)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen: %w", err), recorder.Close(), closeTable())
	}
	web := &http.Server{Handler: hosts.Only(allowed(policy, name, recorder.Handler()), l.Addr(), c.HTTPHosts),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	err = recorder.Prepare(ctx)
	if err == nil {
		go func() { failed <- web.Serve(netutil.LimitListener(l, maxAgents)) }()
		scheme := "http"
		if c.TLSCertificate != "" {
			scheme = "https"
		}
		fmt.Printf("capture of %s: base URL %s://%s/v1, rollouts to %s in groups of %d\nCtrl-C stops it\n", c.Engine,
			scheme,
			l.Addr(), c.Table, c.Group)
		go func() {
			failed <- recorder.Run(ctx)
		}()
		err = <-failed
	}
	stop()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	err = errors.Join(err, web.Close(), recorder.Close(), closeTable())
	c.summarise(recorder.Stats())
	return err
}

// capture makes the capture that the flags describe, and names its table.
func (c *captureCommand) capture(ctx context.Context, log *slog.Logger) (
	recorder *capture.Capture, name string, closeTable func() error, err error,
) {
	o, err := engine.Parse(c.Engine)
	if err != nil {
		return nil, "", nil, err
	}
	if o.Model = string(c.Name); c.KeyFile != "" {
		text, err := os.ReadFile(string(c.KeyFile))
		if err != nil {
			return nil, "", nil, fmt.Errorf("--key-file: %w", err)
		}
		o.Token = strings.TrimSpace(string(text))
	}
	gateway, err := engine.OpenGateway(o)
	if err != nil {
		return nil, "", nil, err
	}
	service, name, err := client.SplitTable(string(c.Table))
	if err != nil {
		return nil, "", nil, err
	}
	options := c.Service.options()
	options.RetryFor = -1 // the service may restart
	connected, err := client.Dial(ctx, service, options)
	if err != nil {
		return nil, "", nil, err
	}
	recorder, err = capture.New(capture.Options{Group: c.Group, Temperature: c.Temperature, Deadline: c.Deadline,
		Memory: int64(c.Memory), Data: string(c.Data), Latest: c.Latest, Table: string(c.Table),
		Weights: string(c.Weights)}, gateway, connected.Table(name), log)
	if err != nil {
		return nil, "", nil, errors.Join(err, connected.Close())
	}
	return recorder, name, connected.Close, nil
}

// listen opens the endpoint, by TLS if there is a certificate.
func (c *captureCommand) listen(ctx context.Context, policy *access.Policy, log *slog.Logger) (net.Listener, error) {
	secret := access.TLS{Certificate: string(c.TLSCertificate), Key: string(c.TLSKey)}
	l, err := access.Listen(ctx, string(c.Listen), secret.On(), policy.NeedsTokens())
	if err != nil || !secret.On() {
		return l, err
	}
	certificates, err := access.NewCertificates(secret, nil, log)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return tls.NewListener(l, certificates.Config("http/1.1")), nil
}

// allowed passes on the requests of those who may write the table.
func allowed(policy *access.Policy, table string, next http.Handler) http.Handler {
	return policy.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := policy.Authorize(r.Context(), table, wire.ToWrite); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// summarise says what was recorded.
func (c *captureCommand) summarise(s capture.Stats) {
	fmt.Printf("%d calls recorded; %d sessions inserted as %d rollouts, %d tokens\n", s.Calls, s.Complete, s.Inserted,
		s.Tokens)
	for _, count := range []struct {
		n    int64
		text string
	}{
		{s.Branches, "%d rollouts began because a call did not continue its session's tokens"},
		{s.Untrained, "%d calls have tokens that are not learned from, as settings steered their sampling"},
		{s.Broken, "%d calls were not recorded: their answer did not reach its end, or came after the reward"},
		{s.Refused, "%d calls were refused for lack of memory"}, {s.Lost, "%d sessions were lost at their deadline"},
		{s.Discarded, "%d sessions were refused by the table, or ended by clients"},
		{s.LeftOut, "%d rollouts were left out by --latest"},
	} {
		if count.n > 0 {
			fmt.Printf(count.text+"\n", count.n)
		}
	}
	if s.Sessions > 0 && c.Data != "" {
		fmt.Printf("%d sessions wait in %s\n", s.Sessions, c.Data)
	} else if s.Sessions > 0 {
		fmt.Printf("%d sessions had not ended and are gone; --data keeps them\n", s.Sessions)
	}
}
