"""The processes of a pod's workers: started, waited for, and what they write."""
