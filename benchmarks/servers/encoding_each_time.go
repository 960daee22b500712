// Go's net/http and encoding/json: each response is encoded again.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/http"
	"os"
)

type priceLevel struct {
	Price                string `json:"price"`
	AccumulatedLiquidity uint64 `json:"accumulated_liquidity"`
}

type orderBook struct {
	Base  string       `json:"base"`
	Quote string       `json:"quote"`
	Spot  *string      `json:"spot"`
	Bids  []priceLevel `json:"bids"`
	Asks  []priceLevel `json:"asks"`
}

type pairInfo struct {
	Base     string  `json:"base"`
	Quote    string  `json:"quote"`
	LastSpot *string `json:"last_spot"`
}

type pairList struct {
	Pairs []pairInfo `json:"pairs"`
}

func send(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

func main() {
	file, err := os.Open(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	books := map[[2]string]*orderBook{}
	var order []*orderBook
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		book := new(orderBook)
		if err := json.Unmarshal(lines.Bytes(), book); err != nil {
			log.Fatal(err)
		}
		books[[2]string{book.Base, book.Quote}] = book
		order = append(order, book)
	}
	http.HandleFunc("/trading-view/order-book", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		base, quote := query.Get("base"), query.Get("quote")
		if book, ok := books[[2]string{base, quote}]; ok {
			send(w, http.StatusOK, book)
		} else {
			send(w, http.StatusNotFound, map[string]string{"error": "Pair " + base + "/" + quote + " not found"})
		}
	})
	http.HandleFunc("/trading-view/pair-list", func(w http.ResponseWriter, r *http.Request) {
		infos := make([]pairInfo, 0, len(order))
		for _, book := range order {
			infos = append(infos, pairInfo{book.Base, book.Quote, book.Spot})
		}
		send(w, http.StatusOK, pairList{infos})
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
