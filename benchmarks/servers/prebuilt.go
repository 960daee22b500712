// Go's net/http: bytes that were ready before, found by the query.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strconv"
)

type named struct {
	Base  string  `json:"base"`
	Quote string  `json:"quote"`
	Spot  *string `json:"spot"`
}

type pairInfo struct {
	Base     string  `json:"base"`
	Quote    string  `json:"quote"`
	LastSpot *string `json:"last_spot"`
}

func send(w http.ResponseWriter, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.Write(body)
}

var contentType = []string{"application/json"}

func main() {
	file, err := os.Open(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	books := map[string][]byte{}
	infos := []pairInfo{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var book named
		if err := json.Unmarshal(lines.Bytes(), &book); err != nil {
			log.Fatal(err)
		}
		books["base="+book.Base+"&quote="+book.Quote] = append([]byte{}, lines.Bytes()...)
		infos = append(infos, pairInfo{book.Base, book.Quote, book.Spot})
	}
	list, err := json.Marshal(map[string][]pairInfo{"pairs": infos})
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/trading-view/order-book", func(w http.ResponseWriter, r *http.Request) {
		if body, ok := books[r.URL.RawQuery]; ok {
			send(w, body)
		} else {
			http.NotFound(w, r)
		}
	})
	http.HandleFunc("/trading-view/pair-list", func(w http.ResponseWriter, r *http.Request) {
		send(w, list)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
