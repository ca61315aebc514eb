// On every page: the token leaves the address bar, where it would be copied and kept; the cookie has it by now.

const address = new URL(location.href);
if (address.searchParams.has("token")) {
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}
