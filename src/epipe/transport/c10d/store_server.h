#pragma once

#include <poll.h>

#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "epipe/transport/c10d/store_request.h"

namespace epipe::transport {

// The keys and values of a run, kept by rank 0 for all ranks (see store_request.h). Unlike c10d::TCPStore, it listens only on the address
// of `host` and on no other interface. Anyone who can reach that address may read and write, up to kMaxStoreMemory in total: a request
// beyond that ends its connection, and existing values stay.
class StoreServer {
 public:
  // Throws std::runtime_error if no address of `host` belongs to this machine, or the port is taken.
  StoreServer(const std::string& host, int port);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  struct Connection {
    int fd = -1;
    Bytes in;   // the incomplete request
    Bytes out;  // answers not sent yet
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
  std::size_t memory_ = 0;  // of values, keys and incomplete requests
  std::thread thread_;
};

}  // namespace epipe::transport
