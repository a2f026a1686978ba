/* How the jobs of dead leases are found, though a claim may commit after the reaper looked.
 *
 * A worker sends its claim; the statement sees that its lease is alive, and commits later: in between the lease may run out
 * and the reaper may delete it. Claims are matched against living leases in every round, so the late one is found by a
 * later round. With -DBROKEN the reaper handles each lease once, when it finds it dead, and the job is stranded.
 */
mtype = { ready, claiming, running, ended };
mtype job = ready;
bool is_lease_alive = true;
bool is_lease_known = true;     /* the worker row is there */
bool is_worker_up = true;
bool is_reaped;                 /* the broken reaper's memory of the lease */
byte takes;

active proctype worker() {
    if
    :: atomic { is_lease_alive && is_lease_known -> job = claiming }   /* the snapshot of the claim */
       atomic { job = running }                                        /* its commit, any time later */
    :: skip
    fi
    /* it never comes back: killed, or stopped for good */
    is_worker_up = false
}

active proctype time() {
    is_lease_alive = false
}

active proctype reaper() {
end:
    do
    :: atomic { (is_lease_known && !is_lease_alive) -> is_lease_known = false;
#ifdef BROKEN
           if
           :: job == running -> job = ready; takes++
           :: else
           fi
#endif
       }
#ifndef BROKEN
    :: atomic { (!is_lease_known && job == running) -> job = ready; takes++ }
#endif
    :: atomic { (job == ready && !is_worker_up) -> job = ended }       /* somebody else claims it and ends it */
    od
}

ltl never_stranded { <> (job == ended) }
ltl taken_once { [] (takes <= 1) }
