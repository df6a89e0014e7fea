#pragma once

#include <poll.h>

#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "epipe/transport/c10d/store_request.h"

namespace epipe::transport {

// The keys and values of a run, kept by rank 0 for all ranks (see store_request.h). Listens on the address that `host` names and on no
// other interface, unlike c10d::TCPStore. Whoever reaches that address may read and write, up to kMaxStoreMemory in all: a request
// beyond that ends its connection, and the values that are there stay.
class StoreServer {
 public:
  // Throws std::runtime_error where no address of `host` is one of this machine, or the port is taken.
  StoreServer(const std::string& host, int port);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  struct Connection {
    int fd = -1;
    Bytes in;   // of a request that has not come to its end
    Bytes out;  // of answers that have not left
  };

  void run();
  void accept_one();
  bool serve(Connection& connection, short events);
  bool read_some(Connection& connection);
  bool answer_all(Connection& connection);
  static bool write_some(Connection& connection);
  Bytes answer(ByteView request, bool& good);
  bool keep(const std::string& key, std::string value);
  void hang_up(Connection& connection);
  Bytes compare_set(const std::string& key, ByteReader& reader, bool& good);

  int listener_ = -1;
  int wake_ = -1;  // an eventfd; readable when the thread is to end
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  std::size_t memory_ = 0;  // of the values, their keys, and the requests that have not come to their end
  std::thread thread_;
};

}  // namespace epipe::transport
