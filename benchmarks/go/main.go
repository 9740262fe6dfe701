// A candidate of make bench by franz-go, in a process of its own: the counterpart of benchmarks/worker.py.
//
// The argument is a job, a JSON object with the fields of Job in job.py. The result is a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Client      string  `json:"client"`
	Servers     string  `json:"servers"`
	Topic       string  `json:"topic"`
	Partitions  int     `json:"partitions"`
	Count       int     `json:"count"`
	Size        int     `json:"size"`
	Keyed       bool    `json:"keyed"`
	Compression string  `json:"compression"`
	Senders     int     `json:"senders"`
	Records     int     `json:"records"`
	Began       float64 `json:"began"`
}

type result map[string]float64

const (
	batch           = 1_048_588 // the largest that brokers take by default
	buffer          = 64 << 20
	linger          = 5 * time.Millisecond
	warmUp          = 50
	warmUpOfCommits = 5
	heartbeat       = 500 * time.Millisecond
	session         = 10 * time.Second
	idleSeconds     = 10
)

var background = context.Background()

func main() {
	var work job
	check(json.Unmarshal([]byte(os.Args[1]), &work))
	run := map[string]func(job) result{
		"produce":      produce,
		"consume":      consume,
		"senders":      senders,
		"transactions": transactions,
		"join":         join,
		"idle":         idle,
		"start":        start,
	}[work.Client]
	measured := run(work)
	if _, isThere := measured["memory"]; !isThere {
		measured["memory"] = status("VmHWM:")
	}
	check(json.NewEncoder(os.Stdout).Encode(measured))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cpu returns the user and system seconds of this process.
func cpu() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// status returns the bytes of a line of /proc/self/status; 0 where there is none.
func status(name string) float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			kibibytes, _ := strconv.Atoi(words[1])
			return float64(kibibytes) * 1024
		}
	}
	return 0
}

type stopwatch struct {
	began time.Time
	cpu   float64
}

func newStopwatch() stopwatch { return stopwatch{time.Now(), cpu()} }

func (watch stopwatch) result() result {
	return result{"wall": time.Since(watch.began).Seconds(), "cpu": cpu() - watch.cpu}
}

func (watch stopwatch) withQuantiles(seconds []float64) result {
	measured := watch.result()
	slices.Sort(seconds)
	measured["p50"] = seconds[len(seconds)/2]
	measured["p99"] = seconds[min(len(seconds)-1, len(seconds)*99/100)]
	return measured
}

// values returns different values, about half of whose bytes are random; at most 32 MiB together.
func (work job) values() [][]byte {
	source := rand.New(rand.NewSource(7))
	word := `{"order": 12345, "customer": "C-0042", "amount": 99.50, "currency": "EUR"}`
	filler := strings.Repeat(word, work.Size/len(word)+1)
	values := make([][]byte, max(1, min(1000, work.Count, (32<<20)/work.Size)))
	for index := range values {
		values[index] = make([]byte, work.Size)
		source.Read(values[index][copy(values[index], filler[:work.Size-work.Size/2]):])
	}
	return values
}

func keys() [][]byte {
	keys := make([][]byte, 1000)
	for index := range keys {
		keys[index] = fmt.Appendf(nil, "key-%05d", index)
	}
	return keys
}

func (work job) client(options ...kgo.Opt) *kgo.Client {
	codec := map[string]kgo.CompressionCodec{
		"":     kgo.NoCompression(),
		"none": kgo.NoCompression(),
		"lz4":  kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	}[work.Compression]
	options = append([]kgo.Opt{
		kgo.SeedBrokers(work.Servers),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(batch),
		kgo.MaxBufferedBytes(buffer),
		kgo.MaxBufferedRecords(1_000_000),
		kgo.ProducerLinger(0),
	}, options...)
	client, err := kgo.NewClient(options...)
	check(err)
	return client
}

func (work job) record(value []byte) *kgo.Record { return &kgo.Record{Topic: work.Topic, Value: value} }

func (work job) sendFirst(client *kgo.Client) {
	check(client.ProduceSync(background, work.record([]byte("first"))).FirstErr())
}

// produce calls Produce with a promise for each record.
func produce(work job) result {
	values, keys := work.values(), keys()
	client := work.client(kgo.ProducerLinger(linger))
	defer client.Close()
	work.sendFirst(client)
	var delivered atomic.Int64
	promise := func(_ *kgo.Record, err error) {
		check(err)
		delivered.Add(1)
	}
	watch := newStopwatch()
	for index := range work.Count {
		record := work.record(values[index%len(values)])
		if work.Keyed {
			record.Key = keys[index%len(keys)]
		}
		client.Produce(background, record, promise)
	}
	check(client.Flush(background))
	measured := watch.result()
	if count := int(delivered.Load()); count != work.Count {
		check(fmt.Errorf("%d records were not delivered", work.Count-count))
	}
	return measured
}

// consume reads record by record. The first consumer warms up, as in worker.py.
func consume(work job) result {
	read(work, min(work.Count, 100))
	return read(work, work.Count)
}

func read(work job, count int) result {
	client := work.client()
	defer client.Close()
	watch := newStopwatch()
	offsets := map[int32]kgo.Offset{}
	for partition := range work.Partitions {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{work.Topic: offsets})
	for bytes := 0; count > 0; {
		fetches := client.PollFetches(background)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			bytes += len(record.Value)
			count--
		})
	}
	return watch.result()
}

// senders runs goroutines that each wait for one send after the other.
func senders(work job) result {
	values := work.values()
	client := work.client()
	defer client.Close()
	send := func(index int) {
		check(client.ProduceSync(background, work.record(values[index%len(values)])).FirstErr())
	}
	for index := range min(warmUp, work.Count) {
		send(index)
	}
	seconds := make([]float64, work.Count)
	var all sync.WaitGroup
	watch := newStopwatch()
	for first := range work.Senders {
		all.Go(func() {
			for index := first; index < work.Count; index += work.Senders {
				began := time.Now()
				send(index)
				seconds[index] = time.Since(began).Seconds()
			}
		})
	}
	all.Wait()
	return watch.withQuantiles(seconds)
}

func transactions(work job) result {
	values := work.values()
	options := []kgo.Opt{kgo.TransactionalID(name())}
	if work.Records > 1 {
		options = append(options, kgo.ProducerLinger(linger))
	}
	client := work.client(options...)
	defer client.Close()
	promise := func(_ *kgo.Record, err error) { check(err) }
	write := func() {
		check(client.BeginTransaction())
		for index := range work.Records {
			client.Produce(background, work.record(values[index%len(values)]), promise)
		}
		check(client.Flush(background))
		check(client.EndTransaction(background, kgo.TryCommit))
	}
	for range warmUpOfCommits {
		write()
	}
	seconds := make([]float64, work.Count)
	watch := newStopwatch()
	for index := range seconds {
		began := time.Now()
		write()
		seconds[index] = time.Since(began).Seconds()
	}
	return watch.withQuantiles(seconds)
}

// name returns a name that nothing else has.
func name() string { return fmt.Sprintf("bench-%x-%x", time.Now().UnixNano(), os.Getpid()) }

// join starts members of a group until each owns its share of the partitions, so many times as the job's count.
func join(work job) result {
	joinOnce(work)
	seconds := make([]float64, work.Count)
	var wall, cpu float64
	for index := range seconds {
		once := joinOnce(work)
		seconds[index] = once["wall"]
		wall += once["wall"]
		cpu += once["cpu"]
	}
	measured := newStopwatch().withQuantiles(seconds)
	measured["wall"], measured["cpu"] = wall, cpu
	return measured
}

func joinOnce(work job) result {
	group, share := name(), work.Partitions/work.Senders
	members := make([]*kgo.Client, work.Senders)
	watch := newStopwatch()
	var all sync.WaitGroup
	for index := range members {
		all.Go(func() {
			var owned atomic.Int64
			complete := make(chan struct{}, 64)
			members[index] = work.client(
				kgo.ConsumerGroup(group),
				kgo.ConsumeTopics(work.Topic),
				kgo.Balancers(kgo.RangeBalancer()),
				kgo.HeartbeatInterval(heartbeat),
				kgo.SessionTimeout(session),
				kgo.DisableAutoCommit(),
				kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
					if owned.Add(int64(len(assigned[work.Topic]))) == int64(share) {
						complete <- struct{}{}
					}
				}),
				kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
					owned.Add(int64(-len(revoked[work.Topic])))
				}),
			)
			for <-complete; int(owned.Load()) != share; <-complete {
			}
		})
	}
	all.Wait()
	measured := watch.result()
	for _, member := range members {
		all.Go(member.Close)
	}
	all.Wait()
	return measured
}

// idle has producers that have sent one record each, and then nothing. CPU and memory are those of all but the first.
func idle(work job) result {
	first := work.client()
	defer first.Close()
	work.sendFirst(first)
	runtime.GC()
	debug.FreeOSMemory()
	before := status("VmRSS:")
	for range work.Count {
		client := work.client()
		defer client.Close()
		work.sendFirst(client)
	}
	runtime.GC()
	debug.FreeOSMemory()
	time.Sleep(time.Second)
	watch := newStopwatch()
	time.Sleep(idleSeconds * time.Second)
	measured := watch.result()
	measured["memory"] = status("VmRSS:") - before
	return measured
}

// start sends one record. The seconds are those since the process was started.
func start(work job) result {
	client := work.client()
	work.sendFirst(client)
	return result{"wall": float64(time.Now().UnixNano())/1e9 - work.Began, "cpu": cpu()}
}
